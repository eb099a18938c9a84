"""Reports that leave the program: tables, JSON, HTML, evidence bundles, and their verification."""
