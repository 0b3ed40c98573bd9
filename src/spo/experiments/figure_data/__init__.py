"""What figures draw beside learning curves, computed apart from the drawing."""
