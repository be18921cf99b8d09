"""Recipes that can be run as they are: a model small enough for a CPU, tasks for it, and experiments on how it learns."""
