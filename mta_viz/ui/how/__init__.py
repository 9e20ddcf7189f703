"""The page How it works: the way from two tokens to the answer in six steps, and a playground."""
