"""How this process behaves: files, signals, seeds, threads, and the settings of numerical libraries."""
