"""What is measured, and how it is told: values in, values and text out. Knows no clock, socket or file."""
