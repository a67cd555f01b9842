"""Other people's files: Hugging Face folders in and out."""
