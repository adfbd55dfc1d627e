"""Flower: a client takes a step from the server's model, in NumPy; the server averages all answers."""

# pyright: reportMissingImports=false, reportMissingModuleSource=false

from __future__ import annotations

import numpy as np
import ray  # noqa: F401  # it brings psutil
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from benchmarks.peer_jobs.job import LEARNING_RATE, Job, Rounds, gradient, report


def client_app(job: Job) -> ClientApp:
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        features, targets = job.data()
        agent = int(context.node_config["partition-id"])
        [model] = message.content["arrays"].to_numpy_ndarrays()
        model = model - LEARNING_RATE * gradient(features[agent], targets[agent], model)
        metrics = MetricRecord({"num-examples": job.samples})
        answer = RecordDict({"arrays": ArrayRecord([model]), "metrics": metrics})
        return Message(content=answer, reply_to=message)

    return app


def processor_seconds() -> float:
    """Of this process and all that Ray has started."""
    import psutil

    this = psutil.Process()
    times = [process.cpu_times() for process in (this, *this.children(recursive=True))]
    return sum(time.user + time.system for time in times)


def work(job: Job) -> tuple[Rounds, np.ndarray]:
    server, rounds, models = ServerApp(), Rounds(processor_seconds), []

    class Averaging(FedAvg):
        """Counts the answers."""

        answers = 0

        def aggregate_train(self, server_round, replies):
            replies = list(replies)
            self.answers += sum(not reply.has_error() for reply in replies)
            return super().aggregate_train(server_round, replies)

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        everyone = Averaging(fraction_train=1.0, fraction_evaluate=0.0, min_available_nodes=job.agents)
        start = ArrayRecord([np.zeros(job.features, np.float32)])

        def round_ended(number: int, arrays: ArrayRecord) -> None:
            rounds.ended(everyone.answers)
            models[:] = arrays.to_numpy_ndarrays()

        everyone.start(grid, start, num_rounds=1 + job.rounds, evaluate_fn=round_ended)

    run_simulation(server, client_app(job), num_supernodes=job.agents)
    # It also reports the start, before the first round.
    rounds.ends.pop(0)
    return rounds, models[0]


if __name__ == "__main__":
    report(work, "flwr", "ray", "numpy")
