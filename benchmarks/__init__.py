"""What the store costs, as ratios against the raw operation in the same run."""
