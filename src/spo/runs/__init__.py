"""What stays on disk: run directories, their records, checkpoints and logs; how runs start, resume and end."""
