"""The Surgery page: a plan of interventions, and what it does to the run on the other pages."""
