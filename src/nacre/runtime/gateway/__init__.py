"""The gateway: messages from channels go to their sessions, and exactly one reply goes back."""
