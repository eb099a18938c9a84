"""Controls: what comparable words do in a prompt, and how an effect is compared with what they do."""
