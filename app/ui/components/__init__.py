"""Parts of pages: markup, settings, and the shells that the browser's scripts fill."""
