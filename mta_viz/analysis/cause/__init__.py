"""What an answer rests on: ablation, patching, attribution, responsibility, and measured effects."""
