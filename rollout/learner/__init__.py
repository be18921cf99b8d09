"""What makes updates of batches: a protocol for a user's own trainer, and the learners that come with the package."""
