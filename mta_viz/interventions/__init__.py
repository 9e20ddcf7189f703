"""What can be changed in a model, as values: kinds of interventions, and plans made of them."""
