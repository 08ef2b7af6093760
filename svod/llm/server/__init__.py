"""A language model behind OpenAI's interface, with a page to chat."""
