"""One small file per tokenizer kind; `Tokens` is what flows from here."""
