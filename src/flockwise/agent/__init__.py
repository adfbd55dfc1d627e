"""One agent, without input or output: the same in the simulator and on a real network."""

from flockwise.agent.agent import Agent, Clock, GradientReleases, Message, Neighbor, Releases

__all__ = ["Agent", "Clock", "GradientReleases", "Message", "Neighbor", "Releases"]
