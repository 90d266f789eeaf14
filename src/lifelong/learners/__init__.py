"""What learns task after task: DEN, and the methods it is measured against."""
