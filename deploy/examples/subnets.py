"""Independent Subnet Training of a wide perceptron on digits: the trainer of subnets-pytorch.yaml, in a job only.

Each worker trains a smaller network with hidden units of its own, and all units are dealt anew at every averaging
(docs/strategies/subnet.md). join() knows no unit groups, so this is the client's lower level: an Agent that says which axes run
over units, and a Subnet that gathers the small network from the whole vector and puts it back.
"""
import argparse
import signal
import sys
import zlib

import torch
from torch.utils.data import DataLoader, TensorDataset

import crowdsurf
from digits import accuracy, digits

EVALUATE_EVERY = 20  # averagings


def network(width):
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, width), torch.nn.ReLU(),
                               torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, 10))


def tensors(net):
    """The units of hidden layer l are group l: rows and biases of its own matrix, columns of the one behind it."""
    layers, found = [module for module in net if isinstance(module, torch.nn.Linear)], []
    names = iter(name for name, _ in net.named_parameters())
    for number, layer in enumerate(layers):
        out = number if number < len(layers) - 1 else -1   # the last one's rows are the classes, which all have
        found += [crowdsurf.Tensor(next(names), tuple(layer.weight.shape), group_out=out, group_in=number - 1),
                  crowdsurf.Tensor(next(names), tuple(layer.bias.shape), group_out=out)]
    return found


def forward(parts, scales, images):
    """The small network. Activations are larger by what is left out, so that the layer behind sees what it sees in the whole."""
    x, matrices = images.flatten(1), list(parts.values())
    for number, scale in enumerate(scales):
        x = torch.nn.functional.linear(x, matrices[2 * number], matrices[2 * number + 1]).relu() * scale
    return torch.nn.functional.linear(x, matrices[-2], matrices[-1])


def train(subnet, params, images, labels, rate):
    """One step of plain SGD of the small network, which starts and ends in the whole vector; the loss before it."""
    parts = {name: torch.from_numpy(values).requires_grad_() for name, values in subnet.gather(params).items()}
    scales = [subnet.scale(group) for group in (0, 1)]
    loss = torch.nn.functional.cross_entropy(forward(parts, scales, images), labels)
    gradients = torch.autograd.grad(loss, list(parts.values()))
    with torch.no_grad():
        subnet.scatter({name: (part - rate * gradient).numpy() for (name, part), gradient in zip(parts.items(), gradients)},
                       params)
    return float(loss)


def forever(loader):
    while True:
        yield from loader


def main():
    parser = argparse.ArgumentParser(description="workers train parts of a wide network on digits")
    parser.add_argument("--width", type=int, default=256, help="of both hidden layers")
    parser.add_argument("--rate", type=float, default=0.02, help="the learning rate")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))   # a container's first process ignores it otherwise
    torch.set_num_threads(1)  # the workers of a local job share the machine
    net = network(options.width)
    agent = crowdsurf.Agent(tensors(net), metrics=["heldout_accuracy"])
    torch.manual_seed(agent.seed)   # the first parameters are the same at every worker
    vector = torch.nn.utils.parameters_to_vector(network(options.width).parameters()).detach()
    torch.nn.utils.vector_to_parameters(vector, net.parameters())   # from here on they are views of the vector
    params = vector.numpy()
    torch.manual_seed(zlib.crc32(agent.worker.encode()))            # the batches are this worker's
    data, held_out = digits()

    outcome, applied, deals, whole = agent.start(params), 0, set(), tuple(range(options.width))
    subnet = crowdsurf.Subnet(agent.tensors, {})                    # the whole network
    for images, labels in forever(DataLoader(TensorDataset(*data), batch_size=32, shuffle=True)):
        if outcome.stop:
            break
        sets = agent.index_sets()
        if sets is not None:
            subnet = crowdsurf.Subnet(agent.tensors, sets)
            deals.add(sets.get(0, whole))
        loss = train(subnet, params, images, labels, options.rate)
        outcome = agent.step(samples=len(labels), loss=loss)
        applied += outcome.applied
        if outcome.applied and applied % EVALUATE_EVERY == 1:
            agent.set_metric("heldout_accuracy", accuracy(net, *held_out))
    print(f"{len(deals)} sub-networks, the smallest of {min(map(len, deals | {whole}))} of {options.width} units; "
          f"held-out accuracy of the whole network {accuracy(net, *held_out):.4f}")
    agent.close()


if __name__ == "__main__":
    main()
