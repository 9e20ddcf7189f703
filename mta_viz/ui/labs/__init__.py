"""The Labs page: tasks with known answers, one tab each."""
