"""What is hidden, what is predicted, how it is scored: where text and networks first meet."""
