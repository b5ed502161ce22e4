"""What the compiler makes of a function, as data for a reader: `facts`, and what a change means."""
