"""Labels of instances by people: where they are kept, the page they are given on, its server."""
