"""What XML formats share: events, elements, inline elements as text."""
