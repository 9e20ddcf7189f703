"""What changes an answer and what adds to it: ablation, patching, attribution, direct effects, tasks."""
