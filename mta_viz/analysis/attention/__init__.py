"""What heads attend to on one prompt: maps, changes from stage to stage, why a cell has its value, scores."""
