"""References: right ways to do a task, which may guide credit; audited, since a wrong or missing one biases what is learned."""
