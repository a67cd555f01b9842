"""qkv.jobs.finetune."""
