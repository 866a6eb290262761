// gRPC's interoperation tests with grpc-java: Client HOST:PORT. Ends with 0 when all cases pass, and names those that do not.
import com.google.protobuf.ByteString;
import grpc.testing.Interop.*;
import grpc.testing.TestServiceGrpc;
import io.grpc.*;
import io.grpc.stub.*;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.AtomicReference;

public class Client {
  static final int[] INPUTS = {27182, 8, 1828, 45904};
  static final int[] OUTPUTS = {31415, 9, 2653, 58979};
  static final SimpleRequest LARGE = SimpleRequest.newBuilder().setResponseSize(314159).setPayload(payload(271828)).build();

  interface Case { void run(Channel channel) throws Exception; }

  // What a stream answers, in order; its end is a Status.
  static class Answers<T> implements StreamObserver<T> {
    final BlockingQueue<Object> queue = new LinkedBlockingQueue<>();
    @Override public void onNext(T answer) { queue.add(answer); }
    @Override public void onError(Throwable error) { queue.add(Status.fromThrowable(error)); }
    @Override public void onCompleted() { queue.add(Status.OK); }
    Object next() throws Exception {
      Object next = queue.poll(20, TimeUnit.SECONDS);
      check(next != null, "nothing came");
      return next;
    }
    void expectSize(int size) throws Exception {
      Object next = next();
      check(next instanceof StreamingOutputCallResponse, next);
      checkSize(((StreamingOutputCallResponse) next).getPayload(), size);
    }
    void expectEnd(Status.Code code) throws Exception {
      Object next = next();
      check(next instanceof Status && ((Status) next).getCode() == code, next);
    }
  }

  static Payload payload(int size) { return Payload.newBuilder().setBody(ByteString.copyFrom(new byte[size])).build(); }

  static StreamingOutputCallRequest outputRequest(int size, int... wanted) {
    StreamingOutputCallRequest.Builder request = StreamingOutputCallRequest.newBuilder().setPayload(payload(size));
    for (int one : wanted) request.addResponseParameters(ResponseParameters.newBuilder().setSize(one));
    return request.build();
  }

  static void check(boolean fine, Object what) { if (!fine) throw new AssertionError(what); }
  static void checkSize(Payload payload, int size) { check(payload.getBody().size() == size, payload.getBody().size() + " bytes"); }

  static Status statusOf(Runnable call) {
    try {
      call.run();
    } catch (StatusRuntimeException error) {
      return error.getStatus();
    }
    return Status.OK;
  }

  static TestServiceGrpc.TestServiceBlockingStub blocking(Channel channel) {
    return TestServiceGrpc.newBlockingStub(channel).withDeadlineAfter(20, TimeUnit.SECONDS);
  }
  static TestServiceGrpc.TestServiceStub streams(Channel channel) {
    return TestServiceGrpc.newStub(channel).withDeadlineAfter(20, TimeUnit.SECONDS);
  }

  static void largeUnary(Channel channel) {
    checkSize(blocking(channel).unaryCall(LARGE).getPayload(), 314159);
    checkSize(blocking(channel).withCompression("gzip").unaryCall(LARGE).getPayload(), 314159);
  }

  static void clientStreaming(Channel channel) throws Exception {
    Answers<StreamingInputCallResponse> answers = new Answers<>();
    StreamObserver<StreamingInputCallRequest> requests = streams(channel).streamingInputCall(answers);
    for (int size : INPUTS) requests.onNext(StreamingInputCallRequest.newBuilder().setPayload(payload(size)).build());
    requests.onCompleted();
    check(((StreamingInputCallResponse) answers.next()).getAggregatedPayloadSize() == 74922, "size");
    answers.expectEnd(Status.Code.OK);
  }

  static void serverStreaming(Channel channel) {
    Iterator<StreamingOutputCallResponse> answers = blocking(channel).streamingOutputCall(outputRequest(0, OUTPUTS));
    for (int size : OUTPUTS) checkSize(answers.next().getPayload(), size);
    check(!answers.hasNext(), "more answers");
  }

  static void pingPong(Channel channel) throws Exception {
    Answers<StreamingOutputCallResponse> answers = new Answers<>();
    StreamObserver<StreamingOutputCallRequest> requests = streams(channel).fullDuplexCall(answers);
    for (int i = 0; i < OUTPUTS.length; ++i) {
      requests.onNext(outputRequest(INPUTS[i], OUTPUTS[i]));
      answers.expectSize(OUTPUTS[i]);
    }
    requests.onCompleted();
    answers.expectEnd(Status.Code.OK);
  }

  static void emptyStream(Channel channel) throws Exception {
    Answers<StreamingOutputCallResponse> answers = new Answers<>();
    streams(channel).fullDuplexCall(answers).onCompleted();
    answers.expectEnd(Status.Code.OK);
  }

  static void customMetadata(Channel channel) {
    Metadata.Key<String> initial = Metadata.Key.of("x-grpc-test-echo-initial", Metadata.ASCII_STRING_MARSHALLER);
    Metadata.Key<byte[]> trailing = Metadata.Key.of("x-grpc-test-echo-trailing-bin", Metadata.BINARY_BYTE_MARSHALLER);
    Metadata sent = new Metadata();
    sent.put(initial, "test_initial_metadata_value");
    sent.put(trailing, new byte[] {(byte) 0xab, (byte) 0xab, (byte) 0xab});
    AtomicReference<Metadata> head = new AtomicReference<>();
    AtomicReference<Metadata> tail = new AtomicReference<>();
    blocking(channel)
        .withInterceptors(MetadataUtils.newAttachHeadersInterceptor(sent), MetadataUtils.newCaptureMetadataInterceptor(head, tail))
        .unaryCall(LARGE);
    check("test_initial_metadata_value".equals(head.get().get(initial)), head);
    check(Arrays.equals(sent.get(trailing), tail.get().get(trailing)), tail);
  }

  static void statusCodeAndMessage(Channel channel) {
    for (String message : new String[] {"test status message", "\t\ntest with whitespace\r\nand Unicode BMP \u263a and non-BMP \ud83d\ude08\t\n"}) {
      EchoStatus wanted = EchoStatus.newBuilder().setCode(2).setMessage(message).build();
      Status status = statusOf(() -> blocking(channel).unaryCall(SimpleRequest.newBuilder().setResponseStatus(wanted).build()));
      check(status.getCode() == Status.Code.UNKNOWN && message.equals(status.getDescription()), status);
    }
  }

  static void cancelAfterBegin(Channel channel) throws Exception {
    Answers<StreamingInputCallResponse> answers = new Answers<>();
    ((ClientCallStreamObserver<?>) streams(channel).streamingInputCall(answers)).cancel("as the test asks", null);
    answers.expectEnd(Status.Code.CANCELLED);
  }

  static void cancelAfterFirstResponse(Channel channel) throws Exception {
    Answers<StreamingOutputCallResponse> answers = new Answers<>();
    StreamObserver<StreamingOutputCallRequest> requests = streams(channel).fullDuplexCall(answers);
    requests.onNext(outputRequest(27182, 31415));
    answers.expectSize(31415);
    ((ClientCallStreamObserver<?>) requests).cancel("as the test asks", null);
    answers.expectEnd(Status.Code.CANCELLED);
  }

  static void timeoutOnSleepingServer(Channel channel) throws Exception {
    Answers<StreamingOutputCallResponse> answers = new Answers<>();
    TestServiceGrpc.newStub(channel).withDeadlineAfter(1, TimeUnit.MILLISECONDS).fullDuplexCall(answers);
    answers.expectEnd(Status.Code.DEADLINE_EXCEEDED);
  }

  public static void main(String[] arguments) throws Exception {
    ManagedChannel channel = ManagedChannelBuilder.forTarget(arguments[0]).usePlaintext().build();
    Map<String, Case> cases = new LinkedHashMap<>();
    cases.put("empty_unary", one -> blocking(one).emptyCall(Empty.getDefaultInstance()));
    cases.put("large_unary", Client::largeUnary);
    cases.put("client_streaming", Client::clientStreaming);
    cases.put("server_streaming", Client::serverStreaming);
    cases.put("ping_pong", Client::pingPong);
    cases.put("empty_stream", Client::emptyStream);
    cases.put("custom_metadata", Client::customMetadata);
    cases.put("status_code_and_message", Client::statusCodeAndMessage);
    cases.put("unimplemented_method", one -> {
      Status status = statusOf(() -> blocking(one).unimplementedCall(Empty.getDefaultInstance()));
      check(status.getCode() == Status.Code.UNIMPLEMENTED, status);
    });
    cases.put("cancel_after_begin", Client::cancelAfterBegin);
    cases.put("cancel_after_first_response", Client::cancelAfterFirstResponse);
    cases.put("timeout_on_sleeping_server", Client::timeoutOnSleepingServer);
    int passed = 0;
    for (Map.Entry<String, Case> one : cases.entrySet()) {
      try {
        one.getValue().run(channel);
        ++passed;
      } catch (Throwable failure) {
        System.out.println(one.getKey() + ": " + failure);
      }
    }
    System.out.println(passed + " of " + cases.size() + " cases passed");
    System.exit(passed == cases.size() ? 0 : 1);
  }
}
