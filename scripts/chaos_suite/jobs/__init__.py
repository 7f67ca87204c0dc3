"""Scripts of the suite's trainers; they run inside elements and write down what they do."""
