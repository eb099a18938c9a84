"""What several features use."""
