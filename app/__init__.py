"""The application: services, background jobs, pages and the command line."""
