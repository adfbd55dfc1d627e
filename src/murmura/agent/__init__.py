"""One agent without I/O."""

from murmura.agent.agent import Agent, Clock, Message, Neighbor, Shelter

__all__ = ["Agent", "Clock", "Message", "Neighbor", "Shelter"]
