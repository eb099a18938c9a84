"""The embedded demonstration model: texts, tokenizer, training, evaluation and export."""
