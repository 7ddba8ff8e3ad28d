# SPDX-License-Identifier: Apache-2.0
# usage: route_client.py HOST:PORT FOLDER    (FOLDER has route_guide_pb2.py, made by protoc)
# RouteGuide through sluice_gateway with gRPC for Python: all four kinds of call, metadata, status with details, deadline,
# cancellation, health, and reflection. A failed assertion ends it with an error.
import sys

import grpc

address, folder = sys.argv[1:]
sys.path.insert(0, folder)
import grpc_health_pb2  # noqa: E402
import grpc_reflection_pb2  # noqa: E402
import route_guide_pb2 as route  # noqa: E402
import rpc_status_pb2  # noqa: E402

channel = grpc.insecure_channel(address)
service = "/sluice.tests.route.RouteGuide/"


def method(kind, name, reply, prefix=service):
    return getattr(channel, kind)(
        prefix + name, request_serializer=lambda m: m.SerializeToString(), response_deserializer=reply.FromString)


get_feature = method("unary_unary", "GetFeature", route.Feature)
list_features = method("unary_stream", "ListFeatures", route.Feature)
record_route = method("stream_unary", "RecordRoute", route.RouteSummary)
route_chat = method("stream_stream", "RouteChat", route.RouteNote)


def failure_of(call):
    try:
        call()
    except grpc.RpcError as error:
        return error
    raise AssertionError("the call did not fail")


# All four kinds.
assert get_feature(route.Point(latitude=3)).name == "feature 3"
area = route.Rectangle(lo=route.Point(latitude=1), hi=route.Point(latitude=5))
assert [f.location.latitude for f in list_features(area)] == [1, 2, 3, 4, 5]
assert record_route(route.Point(latitude=i) for i in range(50)).point_count == 50
notes = [route.RouteNote(message=str(i)) for i in range(30)]
assert [n.message for n in route_chat(iter(notes))] == [n.message for n in notes]

# Metadata both ways.
reply, call = get_feature.with_call(route.Point(), metadata=(("echo-one", "a"), ("echo-raw-bin", b"\x00\xff")))
assert ("echo-one", "a") in call.trailing_metadata(), call.trailing_metadata()
assert ("echo-raw-bin", b"\x00\xff") in call.trailing_metadata()
stream = list_features(area, metadata=(("echo-one", "a"),))
assert ("echo-one", "a") in stream.initial_metadata(), stream.initial_metadata()
assert len(list(stream)) == 5

# Status with details.
error = failure_of(lambda: get_feature(route.Point(), metadata=(("do", "fail"),)))
assert error.code() == grpc.StatusCode.FAILED_PRECONDITION, error
assert error.details() == "out of stock: 100 % \u00e4", error
details = dict(error.trailing_metadata())["grpc-status-details-bin"]
status = rpc_status_pb2.RpcStatus.FromString(details)
assert status.details[0].type_url == b"type.googleapis.com/shop.Stock"
assert status.details[0].value == b"\x08\x00\xff"

# Deadline and cancellation.
error = failure_of(lambda: get_feature(route.Point(), metadata=(("do", "wait"),), timeout=0.2))
assert error.code() == grpc.StatusCode.DEADLINE_EXCEEDED, error
endless = list_features(route.Rectangle())
assert next(endless).name == "feature 0"
endless.cancel()
assert failure_of(lambda: list(endless)).code() == grpc.StatusCode.CANCELLED

# Unknown method, message too long.
unknown = method("unary_unary", "Fly", route.Feature)
error = failure_of(lambda: unknown(route.Point()))
assert error.code() == grpc.StatusCode.UNIMPLEMENTED and "RouteGuide/Fly" in error.details(), error
error = failure_of(lambda: list(route_chat(iter([route.RouteNote(message="x" * 5_000_000)]))))
assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED, error

# Health and reflection under gRPC's names.
check = method("unary_unary", "Check", grpc_health_pb2.HealthCheckResponse, "/grpc.health.v1.Health/")
assert check(grpc_health_pb2.HealthCheckRequest()).status == grpc_health_pb2.HealthCheckResponse.SERVING
info = method("stream_stream", "ServerReflectionInfo", grpc_reflection_pb2.ServerReflectionResponse,
              "/grpc.reflection.v1alpha.ServerReflection/")
questions = [grpc_reflection_pb2.ServerReflectionRequest(list_services=""),
             grpc_reflection_pb2.ServerReflectionRequest(file_containing_symbol="sluice.tests.route.RouteGuide")]
listed, described = info(iter(questions))
assert "sluice.tests.route.RouteGuide" in [s.name for s in listed.list_services_response.service]
assert len(described.file_descriptor_response.file_descriptor_proto) == 1
print("all well")
