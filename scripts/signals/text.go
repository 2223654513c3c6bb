package main

import "strings"

// quoted is text of a page, in which ' stands for a backquote.
func quoted(text string) string { return strings.ReplaceAll(text, "'", "`") }

var head = quoted(`# Conditions, Events, metrics, alerts and exit codes

Written by 'make generate' from the code; do not edit. The texts are comments, helps of metrics and rules there.
`)

const fabricHead = `
## Conditions of a Fabric

Each condition is there always, with its reason. Messages name what is wrong. Publishing and addresses in detail:
[fabrics.md](../fabrics.md#namespaces), [addresses.md](../addresses.md).
`

var nodeHead = quoted(`
## Conditions of a FabricNode

'Ready' is there always. The others are there while they are False. One has the worst of its reasons, in the order of
this list, and the messages of all: of each fabric and device that it concerns, as far as they have room in 1024 bytes.
When a port is unhealthy, and what becomes of its device: [health.md](../health.md). The same reasons are the 'problem'
of a device in the status, label values of metrics, and values of [taints of devices](../dra.md#health).

A Node itself has the condition 'FabricHealthy' if you [want it](../health.md#nodes-a-condition-and-a-taint).
`)

const eventsHead = `
## Events

Those on the Node are made by its agent, those on the Fabric by the controller. An Event is gone after an hour;
conditions and metrics stay.
`

var metricsHead = quoted(`
## Metrics

Each of these is at '/metrics': [who may read it](../monitoring.md#who-may-read-metrics). Series of a device in a pod
have the labels 'pod_namespace' and 'pod_name'. Of the controller only the replica that leads has them; it also has
those of controller-runtime.
`)

var alertsHead = quoted(`
## Alerts

The chart makes a PrometheusRule of these with 'metrics: { rules: true }'. The name of each links to what to do.
`)

var codesHead = quoted(`
## Error codes and exit codes

The codes of errors that the CNI plugin returns, with what to do: [errors.md](../errors.md). Exit statuses of
'fabricctl': [fabricctl.md](../fabricctl.md).
`)
