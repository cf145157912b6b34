"""Sends a task with Celery, and runs a worker: `publish EXCHANGE KEY` or `get QUEUE`.

The worker takes the tasks of the queue in their order, and prints the one that it has run. It must have run that one once when it comes to
the last task, which stops it.
"""

import os
import sys

import celery
import celery.exceptions
import kombu

import message

app = celery.Celery(broker=os.environ["AMQP_URL"])
app.conf.update(
    broker_transport_options={"confirm_publish": True},
    worker_prefetch_multiplier=1,
    task_create_missing_queues=False,
    worker_enable_remote_control=False,
    worker_redirect_stdouts=False,
)
ran = []


@app.task(bind=True, name="charge")
def charge(self, *args, **kwargs):
    ran.append((self.request, args, kwargs))


@app.task(name="stop")
def stop():
    raise celery.exceptions.WorkerShutdown(0)


match sys.argv[1:]:
    case "publish", exchange, key:
        charge.apply_async(
            args=[7, "grün 緑", None, [1.5]],
            kwargs={"currency": "EUR"},
            exchange=exchange,
            routing_key=key,
            expires=86400,
            priority=3,
            headers={"tenant": "seven", "numbers": [1, 2**40]},
            reply_to="the reply queue",
            correlation_id="the correlation",
        )
    case "get", queue:
        # Without its type Celery would not know that a quorum queue refuses the way in which it
        # limits deliveries.
        arguments = {"x-queue-type": "quorum"}
        app.conf.task_queues = [kombu.Queue(queue, queue_arguments=arguments, no_declare=True)]
        app.conf.task_default_queue = queue
        stop.apply_async(exchange="", routing_key=queue)
        options = ["--pool=solo", "--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel=ERROR"]
        try:
            app.worker_main(["--quiet", "worker", *options])
        except SystemExit as end:
            assert not end.code, end
        [(request, args, kwargs)] = ran
        names = "id", "task", "root_id", "correlation_id", "reply_to", "lang", "retries", "eta", "expires", "origin"
        properties = {name: getattr(request, name, None) for name in names}
        properties["priority"] = request.delivery_info["priority"]
        message.show(request.delivery_info["routing_key"], properties, request.headers, [args, kwargs])
