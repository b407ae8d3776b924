"""Bags whose neighbouring instances are coupled through a graph [M24]."""
