"""What several test modules share: oracles, small runs, federations of real nodes."""
