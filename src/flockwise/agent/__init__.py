"""One agent without I/O."""

from flockwise.agent.agent import Agent, Clock, Message, Neighbor, Shelter

__all__ = ["Agent", "Clock", "Message", "Neighbor", "Shelter"]
