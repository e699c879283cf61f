"""Tool calls for models that only write text: described in the prompt, read out of the answer."""
