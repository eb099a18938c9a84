"""Reports that leave the program: tables, JSON, HTML and evidence bundles."""
