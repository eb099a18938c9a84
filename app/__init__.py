"""The application: a folder for each feature, and what several of them share."""
