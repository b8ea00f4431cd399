"""How long a training step takes on given nodes, predicted from what was published and measured."""
