"""A plan of interventions, what it does to an answer, and what an answer rests on."""
