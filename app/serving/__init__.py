"""What the web server puts around the features: who is answered, what pages load, and what programs may call."""
