"""The labs: a model on tasks with known answers, each answer located."""
