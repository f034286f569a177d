"""Crowdsurf for Python trainers. A PyTorch loop becomes a worker of a job:

    job = crowdsurf.join(model, optimizer)
    for inputs, labels in job.batches(loader):      # ends when the job's target is met
        loss = train_one_step(inputs, labels)
        job.step(loss=loss, samples=len(inputs))

For anything else that has a buffer there is Agent:

    agent = crowdsurf.Agent([crowdsurf.Tensor("w", (4, 8))])
    params = first_parameters(agent.seed)           # float32, the averaged tensors one after the other
    agent.start(params)
    while not agent.step(samples=8, loss=train_one_step(params)).stop:
        pass

Nothing here is compiled, and nothing is required: numpy is used where it is installed, PyTorch by join() alone.
"""

from .agent import Agent
from .connection import AgentError
from .export import export_model
from .job import Job, join
from .parameters import Parameters, State
from .safetensors import load_model
from .subnet import Subnet
from .tensor import Notice, Outcome, Tensor, UnitAxis
from .version import __version__

__all__ = ["Agent", "AgentError", "Job", "Notice", "Outcome", "Parameters", "State", "Subnet", "Tensor", "UnitAxis",
           "__version__", "export_model", "join", "load_model"]
